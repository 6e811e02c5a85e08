"""Texts in, texts out: a request, the steps to its outputs, and the engines that compute them."""
