"""Chats of messages: what a model's chat template makes of them."""
