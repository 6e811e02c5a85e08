"""The command `vanilla-transformer`: one file per subcommand.

The file of a subcommand has SUMMARY, one sentence for the help; `parse(words)`, which returns its
options; and `run(options)`, which does the work. At their top these files import only what is
quick, so that the help is. What a subcommand needs of the library is imported when it runs, after
its options and files are checked.
"""
