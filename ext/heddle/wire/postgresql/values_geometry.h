// Geometric values in their binary form, all of float8 (geo_ops.c of the server).
#ifndef HEDDLE_WIRE_POSTGRESQL_VALUES_GEOMETRY_H
#define HEDDLE_WIRE_POSTGRESQL_VALUES_GEOMETRY_H

#include "wire/postgresql/values.h"

struct pg_point {
    double x, y;
};
bool pg_read_point(struct pg_span value, struct pg_point *point);

// The line a x + b y + c = 0
struct pg_line {
    double a, b, c;
};
bool pg_read_line(struct pg_span value, struct pg_line *line);

// Both ends of an lseg; for a box the corner with the larger coordinates, then the other corner.
bool pg_read_two_points(struct pg_span value, struct pg_point points[2]);

struct pg_circle {
    struct pg_point center;
    double radius; // not negative
};
bool pg_read_circle(struct pg_span value, struct pg_circle *circle);

// Any number of points. A polygon is closed.
struct pg_points {
    bool closed;
    uint32_t count;
    const uint8_t *at;
};
bool pg_read_path(struct pg_span value, struct pg_points *points);
bool pg_read_polygon(struct pg_span value, struct pg_points *points);
struct pg_point pg_point_of(const struct pg_points *points, uint32_t index);

#endif
