"""Pure functions from a Report to text: they arrange its content, without computing or writing."""
