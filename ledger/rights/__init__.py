"""Rights: one model of principals, roles and rights for HTTP, gRPC and bookies.

* `principal`: a principal, its role and its scope. Pure.
* `table`: which role has which right. Pure.
* `entries`: what a file of principals says, and how a credential finds its principal. Pure.
* `issuers`: tokens that somebody else has signed (JWT).
* `file`: the file, read again while the process runs; `token_file`: the same of a file of tokens.
* `callers`: who calls, by these files.

A door (a port of a server) maps each of its methods to a right, and refuses a method that it does not know.
"""
