"""How much goodput could anybody have had who knew everything beforehand?"""
