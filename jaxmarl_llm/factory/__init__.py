"""From a config to objects. The code that this folder calls does not know the ConfigDict."""
