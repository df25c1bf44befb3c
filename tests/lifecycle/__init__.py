"""What goes, goes everywhere; what is copied stands on its own: erasing, retention, copies, snapshots, keys."""
