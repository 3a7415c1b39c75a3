"""What the pages under `/foundations` compute: one module per page, built from `foundations`.

    page.py         what a page is: its inputs, its answer, the sources it shows
    inputs.py       what a page can be asked, and how the texts of a query string are read
    listings.py     the real source of a function, line by line
    pages.py        the table of all pages, in reading order
    index.py        which section of the source documents stands on which page

Every name in `pages.ORDER` is a module of its own: the page in the browser shows what its JSON twin says, and one
function makes both. What a page needs besides stands beside it:

    agreement.py            how far results lie apart
    tensor_summary.py       figures and histogram of a tensor
    layer_stack.py          fifty layers, and what is left of the spread
    reference_model.py      the chapter's model as drawn, and its gradients by autograd
    style_code.py           the five styles' sources, laid side by side; line_alignment.py puts equal lines opposite
    recorded_call.py        one call of a Function: what it saved, was given, returned
    custom_functions.py     the Functions that can be chosen
    finite_differences.py   which error a step is expected to make
    build_extension.py      the build, for the command line
"""
