"""Writes the parts of the chart that come from other files, so that no value is copied by hand."""
