"""Kinds of classifiers: each module gets its files (`obtain`) and loads them (`load`)."""
