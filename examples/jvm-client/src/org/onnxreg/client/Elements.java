package org.onnxreg.client;

/** The numbers of a block, to which a delta adds differences. Integers are little-endian. */
final class Elements {
    private final byte[] block;
    private final int width;
    private final boolean isFloat;
    private final long mask;
    private final long sign;

    Elements(byte[] block, int width, boolean isFloat) {
        this.block = block;
        this.width = width;
        this.isFloat = isFloat;
        sign = 1L << (8 * width - 1);
        mask = sign | (sign - 1);
    }

    /**
     * Add differences, which are given as planes of bytes: the lowest bytes of all of them first.
     *
     * @param changed the numbers of the elements that change; null if all do
     */
    void add(byte[] planes, int start, int size, int[] changed) {
        for (int i = 0; i < size; i++) {
            long zigzag = changed == null ? 0 : 1;
            for (int plane = 0; plane < width; plane++) {
                zigzag += (planes[start + plane * size + i] & 0xFFL) << (8 * plane);
            }
            zigzag &= mask;
            add(width * (changed == null ? i : changed[i]), (zigzag >>> 1) ^ -(zigzag & 1));
        }
    }

    private void add(int at, long difference) {
        long value = 0;
        for (int i = 0; i < width; i++) {
            value |= (block[at + i] & 0xFFL) << (8 * i);
        }
        value = isFloat ? unordered(ordered(value) + difference) : value + difference;
        for (int i = 0; i < width; i++) {
            block[at + i] = (byte) (value >>> (8 * i));
        }
    }

    /** Return the integer whose order is the order of the float with these bits. */
    private long ordered(long bits) {
        return (bits & sign) == 0 ? bits | sign : ~bits;
    }

    private long unordered(long integer) {
        return (integer & sign) == 0 ? ~integer : integer & ~sign;
    }
}
