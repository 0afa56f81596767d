"""One command of the command line a file; what one needs beyond click is imported when it is called."""
