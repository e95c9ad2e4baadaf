"""Operations with all that tiling, scheduling and emission ask about them."""
