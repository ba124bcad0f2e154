// Points, lines and figures.
#include "db/postgresql/values.h"
#include "wire/postgresql/values_geometry.h"

static VALUE cPoint, cLine, cLineSegment, cBox, cPath, cPolygon, cCircle;

static VALUE point_value(struct pg_point point)
{
    return rb_struct_new(cPoint, DBL2NUM(point.x), DBL2NUM(point.y));
}

static VALUE points_value(const struct pg_points *points)
{
    VALUE array = rb_ary_new_capa((long)points->count);
    for (uint32_t i = 0; i < points->count; i++)
        rb_ary_push(array, point_value(pg_point_of(points, i)));
    return array;
}

VALUE postgresql_geometry_value(const struct postgresql_reading *reading, struct pg_span span,
                                enum postgresql_kind kind)
{
    struct pg_point points[2];
    struct pg_line line;
    struct pg_circle circle;
    struct pg_points many;
    switch (kind) {
    case POSTGRESQL_KIND_POINT:
        postgresql_check_value(reading, pg_read_point(span, points));
        return point_value(points[0]);
    case POSTGRESQL_KIND_LINE:
        postgresql_check_value(reading, pg_read_line(span, &line));
        return rb_struct_new(cLine, DBL2NUM(line.a), DBL2NUM(line.b), DBL2NUM(line.c));
    case POSTGRESQL_KIND_LSEG:
    case POSTGRESQL_KIND_BOX:
        postgresql_check_value(reading, pg_read_two_points(span, points));
        return rb_struct_new(kind == POSTGRESQL_KIND_BOX ? cBox : cLineSegment, point_value(points[0]),
                             point_value(points[1]));
    case POSTGRESQL_KIND_PATH:
        postgresql_check_value(reading, pg_read_path(span, &many));
        return rb_struct_new(cPath, points_value(&many), many.closed ? Qtrue : Qfalse);
    case POSTGRESQL_KIND_POLYGON:
        postgresql_check_value(reading, pg_read_polygon(span, &many));
        return rb_struct_new(cPolygon, points_value(&many));
    default:
        postgresql_check_value(reading, pg_read_circle(span, &circle));
        return rb_struct_new(cCircle, point_value(circle.center), DBL2NUM(circle.radius));
    }
}

void postgresql_values_geometry_load_classes(void)
{
    cPoint = db_class("Heddle::DB::PostgreSQL::Point");
    cLine = db_class("Heddle::DB::PostgreSQL::Line");
    cLineSegment = db_class("Heddle::DB::PostgreSQL::LineSegment");
    cBox = db_class("Heddle::DB::PostgreSQL::Box");
    cPath = db_class("Heddle::DB::PostgreSQL::Path");
    cPolygon = db_class("Heddle::DB::PostgreSQL::Polygon");
    cCircle = db_class("Heddle::DB::PostgreSQL::Circle");
}
