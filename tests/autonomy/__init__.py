"""What work may cost, how far it may go by itself, and what a model is told that goes on asking."""
