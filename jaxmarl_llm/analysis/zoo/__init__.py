"""The zoo: are its rows whole, what do they run, and the page that shows them."""
