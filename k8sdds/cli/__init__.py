"""The commands, one module each: parse the options, call one package, print the result."""
