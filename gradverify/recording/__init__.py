"""What `gradverify record` puts into the processes of a command: calls of Functions are noted in a
folder, from which the command writes specs."""
