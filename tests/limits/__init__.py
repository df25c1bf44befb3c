"""What is too much, too odd or too many: refused in a clear form, with nothing stored and nobody held up."""
