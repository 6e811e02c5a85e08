"""The command `vanilla-transformer`: one file per subcommand.

These files import only the standard library at their top. What a subcommand needs of the library is
imported when it runs, after its options and files are checked.
"""
