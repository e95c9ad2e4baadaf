"""Which memory layout has each tensor, and where are copies inserted?"""
