"""What of the chart is written from other files, so that nothing in it is said twice by hand."""
