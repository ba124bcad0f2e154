# frozen_string_literal: true

module Heddle
  module DB
    # Geometric values. Each prints as PostgreSQL reads it, and can be bound.
    module PostgreSQL
      # A point of the plane.
      #
      # @!attribute x
      #   @return [Float]
      # @!attribute y
      #   @return [Float]
      # @!method self.new(x, y)
      #   @return [Point]
      Point = Struct.new(:x, :y) do
        # @return [String] as PostgreSQL reads it
        def to_s = "(#{x},#{y})"
      end

      # The line a x + b y + c = 0.
      #
      # @!attribute a
      #   @return [Float]
      # @!attribute b
      #   @return [Float]
      # @!attribute c
      #   @return [Float]
      # @!method self.new(a, b, c)
      #   @return [Line]
      Line = Struct.new(:a, :b, :c) do
        # @return [String] as PostgreSQL reads it
        def to_s = "{#{a},#{b},#{c}}"
      end

      # The part of a line between two points.
      #
      # @!attribute first
      #   @return [Point]
      # @!attribute last
      #   @return [Point]
      # @!method self.new(first, last)
      #   @return [LineSegment]
      LineSegment = Struct.new(:first, :last) do
        # @return [String] as PostgreSQL reads it
        def to_s = "[#{first},#{last}]"
      end

      # A rectangle whose sides are parallel to the axes.
      #
      # @!attribute high
      #   @return [Point] the corner with the larger coordinates
      # @!attribute low
      #   @return [Point]
      # @!method self.new(high, low)
      #   @return [Box]
      Box = Struct.new(:high, :low) do
        # @return [String] as PostgreSQL reads it
        def to_s = "#{high},#{low}"
      end

      # Points that lines connect, in their order.
      #
      # @!attribute points
      #   @return [Array<Point>]
      # @!attribute closed
      #   @return [Boolean]
      # @!method self.new(points, closed)
      #   @return [Path]
      Path = Struct.new(:points, :closed) do
        # @return [String] as PostgreSQL reads it
        def to_s = closed ? "(#{points.join(",")})" : "[#{points.join(",")}]"
      end

      # An area that lines between points enclose.
      #
      # @!attribute points
      #   @return [Array<Point>]
      # @!method self.new(points)
      #   @return [Polygon]
      Polygon = Struct.new(:points) do
        # @return [String] as PostgreSQL reads it
        def to_s = "(#{points.join(",")})"
      end

      # A circle.
      #
      # @!attribute center
      #   @return [Point]
      # @!attribute radius
      #   @return [Float]
      # @!method self.new(center, radius)
      #   @return [Circle]
      Circle = Struct.new(:center, :radius) do
        # @return [String] as PostgreSQL reads it
        def to_s = "<#{center},#{radius}>"
      end

      GEOMETRY = [Point, Line, LineSegment, Box, Path, Polygon, Circle].freeze
      private_constant :GEOMETRY
    end
  end
end
