#include "wire/wire_postgresql_values_geometry.h"

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

enum pg_written pg_put_point(struct pg_buffer *buffer, struct pg_point point)
{
    if (!pg_reserve(buffer, POINT)) return PG_NO_ROOM;
    pg_put_float8(buffer, point.x);
    return pg_put_float8(buffer, point.y);
}

bool pg_read_line(struct pg_span value, struct pg_line *line)
{
    if (value.length != 24) return false;
    *line = (struct pg_line){pg_load_double(value.at), pg_load_double(value.at + 8), pg_load_double(value.at + 16)};
    return true;
}

enum pg_written pg_put_line(struct pg_buffer *buffer, struct pg_line line)
{
    if (line.a == 0 && line.b == 0) return PG_OUT_OF_RANGE; // not a line
    if (!pg_reserve(buffer, 24)) return PG_NO_ROOM;
    pg_put_float8(buffer, line.a);
    pg_put_float8(buffer, line.b);
    return pg_put_float8(buffer, line.c);
}

bool pg_read_two_points(struct pg_span value, struct pg_point points[2])
{
    if (value.length != 2 * POINT) return false;
    points[0] = point_at(value.at);
    points[1] = point_at(value.at + POINT);
    return true;
}

enum pg_written pg_put_two_points(struct pg_buffer *buffer, struct pg_point first, struct pg_point second)
{
    if (!pg_reserve(buffer, 2 * POINT)) return PG_NO_ROOM;
    pg_put_point(buffer, first);
    return pg_put_point(buffer, second);
}

bool pg_read_circle(struct pg_span value, struct pg_circle *circle)
{
    if (value.length != 24) return false;
    *circle = (struct pg_circle){point_at(value.at), pg_load_double(value.at + POINT)};
    return !(circle->radius < 0);
}

enum pg_written pg_put_circle(struct pg_buffer *buffer, struct pg_circle circle)
{
    if (circle.radius < 0) return PG_OUT_OF_RANGE;
    if (!pg_reserve(buffer, 24)) return PG_NO_ROOM;
    pg_put_point(buffer, circle.center);
    return pg_put_float8(buffer, circle.radius);
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

enum pg_written pg_put_path(struct pg_buffer *buffer, bool closed, uint32_t count)
{
    if (count == 0) return PG_OUT_OF_RANGE;
    if (count > POINTS_MOST) return PG_TOO_LONG;
    if (!pg_reserve(buffer, 5)) return PG_NO_ROOM;
    pg_put_8(buffer, closed);
    return pg_put_32(buffer, count);
}

enum pg_written pg_put_polygon(struct pg_buffer *buffer, uint32_t count)
{
    if (count == 0) return PG_OUT_OF_RANGE;
    return count > POINTS_MOST ? PG_TOO_LONG : pg_put_32(buffer, count);
}
