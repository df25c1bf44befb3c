"""What whoever operates Outrider has in hand: backups, documents, the story of a job, deliveries, figures, traces."""
