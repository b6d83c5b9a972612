"""Tables of other formats, as their own connectors of Spark read them: how the rule finds and changes their scans."""
