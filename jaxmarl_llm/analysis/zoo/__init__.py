"""The zoo: checks that its rows are complete, the commands that they run, and the page that shows them."""
