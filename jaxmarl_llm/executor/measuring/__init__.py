"""How much faster one program is than another, measured in pairs."""
