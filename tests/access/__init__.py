"""Who may ask, as whom, and for what: tokens, logins, shares."""
