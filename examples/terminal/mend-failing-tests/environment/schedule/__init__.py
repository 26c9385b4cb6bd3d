"""When something recurs."""
