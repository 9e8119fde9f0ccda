"""Figures."""


def make(content, folder):
    return []
