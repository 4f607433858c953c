"""The paper's figures, one module each. They read the merged results and draw; they compute no result."""
