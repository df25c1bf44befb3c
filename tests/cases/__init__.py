"""What went wrong in systems like ours and must hold here: one file a theme, the case's id in each test's name."""
