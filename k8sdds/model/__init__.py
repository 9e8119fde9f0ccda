"""Define what users write and what follows from it, as pure data that starts nothing and opens no file."""
