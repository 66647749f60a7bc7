"""`python -m gradverify` and the console script. Imports nothing at its top, because worker processes run this module again."""


def main() -> None:
    """Runs the command line and exits."""
    from gradverify.cli.boundary import main as run_and_exit

    run_and_exit()


if __name__ == "__main__":
    main()
