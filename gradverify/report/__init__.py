"""Pure functions from a Report to text. They lay out what was found; they compute nothing and write
nowhere."""
