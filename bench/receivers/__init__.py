"""Receivers of webhooks, each a program of its own, and the program that sends to them."""
