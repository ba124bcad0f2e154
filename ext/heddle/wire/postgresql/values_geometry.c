#include "wire/postgresql/values_geometry.h"

enum { POINT = 16, POINTS_MOST = PG_MESSAGE_MOST / POINT };

static struct pg_point point_at(const uint8_t *p)
{
    return (struct pg_point){pg_load_double(p), pg_load_double(p + 8)};
}

bool pg_read_point(struct pg_span value, struct pg_point *point)
{
    if (value.length != POINT) return false;
    *point = point_at(value.at);
    return true;
}

bool pg_read_line(struct pg_span value, struct pg_line *line)
{
    if (value.length != 24) return false;
    *line = (struct pg_line){pg_load_double(value.at), pg_load_double(value.at + 8), pg_load_double(value.at + 16)};
    return true;
}

bool pg_read_two_points(struct pg_span value, struct pg_point points[2])
{
    if (value.length != 2 * POINT) return false;
    points[0] = point_at(value.at);
    points[1] = point_at(value.at + POINT);
    return true;
}

bool pg_read_circle(struct pg_span value, struct pg_circle *circle)
{
    if (value.length != 24) return false;
    *circle = (struct pg_circle){point_at(value.at), pg_load_double(value.at + POINT)};
    return !(circle->radius < 0);
}

static bool read_points(const uint8_t *p, const uint8_t *end, struct pg_points *points)
{
    if (!pg_take_32(&p, end, &points->count)) return false;
    points->at = p;
    return points->count <= POINTS_MOST && (size_t)(end - p) == POINT * (size_t)points->count;
}

bool pg_read_path(struct pg_span value, struct pg_points *points)
{
    if (value.length < 1 || value.at[0] > 1) return false;
    points->closed = value.at[0];
    return read_points(value.at + 1, value.at + value.length, points);
}

bool pg_read_polygon(struct pg_span value, struct pg_points *points)
{
    points->closed = true;
    return read_points(value.at, value.at + value.length, points);
}

struct pg_point pg_point_of(const struct pg_points *points, uint32_t index)
{
    return point_at(points->at + POINT * (size_t)index);
}
