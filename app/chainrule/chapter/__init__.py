"""What the pages under `/foundations` compute: one module per page, built from `foundations`.

    page.py         what a page is: its inputs, its answer, the sources it shows
    inputs.py       what a page can be asked, and how the texts of a query string are read
    json_values.py  tensors as JSON
    listings.py     the real source of a function, line by line
    pages.py        the table of all pages, in reading order
    index.py        which section of the source documents stands on which page

Every name in `pages.ORDER` is a module of its own, and what several pages or one large one need stands beside them: of
the backward pages `tensor_summary`, of styles `style_code`, of functions `recorded_call`, of the gradient check
`custom_functions`, `finite_differences` and `check_report`. `own_check` and `build_extension` are the two commands. A page
in the browser shows what its JSON twin says: one function makes both.
"""
