"""What the command line shows: text made safe, colours where a terminal is, plain lines elsewhere."""
