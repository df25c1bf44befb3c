"""What plugins reach: the sdk from wherever they run, what they hear, and what they bring."""
