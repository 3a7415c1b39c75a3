"""What the pages under `/foundations` compute: one module per page, built from `foundations`.

    page.py         what a page is: its inputs, its answer, the sources it shows
    inputs.py       what a page can be asked, and how the texts of a query string are read
    json_values.py  tensors as JSON
    listings.py     the real source of a function, line by line
    pages.py        the table of all pages, in reading order
    index.py        which section of the source documents stands on which page

Every other module is a page. The page in the browser shows what its JSON twin says: one function makes both.
"""
