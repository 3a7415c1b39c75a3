"""The pages under `/foundations`: one module per page, named in `pages.ORDER`, built from `foundations`.

    page.py         a page: its inputs, its answer, the sources it shows
    inputs.py       the kinds of inputs, and how typed texts are read
    listings.py     the source of a function, line by line
    pages.py        the table of all pages, in reading order
    index.py        which section of the source documents stands on which page

The page in the browser shows its JSON twin's answer. Several pages share these modules:

    agreement.py            how far results lie apart
    tensor_summary.py       figures and histogram of a tensor
    reference_model.py      the chapter's model as drawn, and its gradients by autograd
    style_code.py           the five styles' sources side by side
    custom_functions.py     the Functions that can be chosen
"""
