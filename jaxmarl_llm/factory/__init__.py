"""Build objects from a config. The code that this folder calls does not know the ConfigDict."""
