"""Answer which configuration an application should use: evidence, verdicts, what each choice is worth, ready files."""
