"""The report as one HTML file: no network, no script; pictures of failing Jacobians as PNG and SVG inside it."""
