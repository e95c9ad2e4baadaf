"""Does the imported graph still compute what the user's file computes?"""
