"""import_stablehlo"""
