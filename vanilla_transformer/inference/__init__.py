"""Texts in, texts out: a request, its stages, and the engines that compute them."""
