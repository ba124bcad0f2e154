# frozen_string_literal: true

module Heddle
  module NetHTTP
    # Methods that a program keeps, under another name or as an object, before it puts its own in their place, which goes on to what
    # was kept. Ruby hands out what stands in front: ours, which goes on to what is in that place by then, the program's own, and
    # so for ever. So a name is given the method behind ours; and while there is another's method in a place, ours is not in front
    # of it: only who has kept it calls it, and is given what was there.
    class Aliases
      FOLDER = "#{__dir__}/"
      private_constant :FOLDER

      @displaced = {}

      class << self
        # @param object [Object]
        # @param name [Symbol] of a method of ours
        # @return [UnboundMethod, nil] what that goes on to in place of what is there now
        def kept(object, name)
          @displaced[name]&.each { |place, method| return method if place === object }
          nil
        end

        # @return [Boolean]
        def displaced?(place, name) = !!@displaced[name]&.any? { |other, _| other.equal?(place) }

        # @param place [Module]
        # @param name [Symbol]
        # @param method [UnboundMethod, nil]
        def displace(place, name, method)
          others = @displaced.fetch(name, []).reject { |other, _| other.equal?(place) }
          @displaced = @displaced.merge(name => method ? [*others, [place, method]] : others).reject { |_, all| all.empty? }
          Library.displaced = !@displaced.empty?
        end
      end

      # @param fronts [Hash{Module => Module}] what stands in front, by whom it stands in front of
      # @param wanted [#call] whether it shall stand there now
      def initialize(fronts, wanted)
        @fronts = fronts
        @wanted = wanted
        @ours = fronts.transform_values { |front| methods_of(front) }
        @behind = @ours.to_h { |place, ours| [place, ours.to_h { |name, _| [name, behind(place.instance_method(name))] }] }
      end

      # What was just made, or removed.
      #
      # @param place [Module]
      # @param name [Symbol]
      def look(place, name)
        known = @behind[place] or return
        method = behind(place.instance_method(name)) if defined_in?(place, name)
        unless method&.owner.equal?(place)
          restore(place, name, known[name]) if known.key?(name) && Aliases.displaced?(place, name)
          return
        end

        method = give(place, name, known, method) if known.key?(method.original_name) && ours?(method)
        arrange(place, name, method) if known.key?(name)
      end

      # After ours have been put in front.
      def look_at_all
        @behind.each { |place, known| known.each_key { |name| arrange(place, name, behind(place.instance_method(name))) } }
      end

      private

      def behind(method)
        method = method.super_method while method && Pristine.ours?(method.owner)
        method
      end

      # What the libraries ship is in Ruby.
      def ours?(method)
        file = method.source_location&.first
        file.nil? || file.start_with?(FOLDER)
      end

      def same?(one, other) = one.owner.equal?(other.owner) && one.source_location == other.source_location

      def defined_in?(mod, name, inherited = true)
        mod.method_defined?(name, inherited) || mod.private_method_defined?(name, inherited)
      end

      # RSpec's any_instance removes its own method at the end, and aliases back only what was the class's own: it has seen ours.
      def restore(place, name, method)
        place.define_method(name, method)
        place.send(@ours[place][name].last, name)
      end

      # The method behind ours, in its place.
      def give(place, name, known, method)
        kept = method.super_method
        kept = known.fetch(method.original_name) unless kept&.owner.equal?(place) && !ours?(kept)
        visibility = place.private_method_defined?(name) ? :private : :public
        place.define_method(name, kept)
        place.send(visibility, name)
        kept
      end

      def arrange(place, name, method)
        if same?(method, @behind[place][name])
          put_back(place, name) if Aliases.displaced?(place, name)
        else
          Aliases.displace(place, name, @behind[place][name])
          front = @fronts[place]
          remove(front, name) if defined_in?(front, name, false)
        end
      end

      def put_back(place, name)
        Aliases.displace(place, name, nil)
        return unless @wanted.call

        front = @fronts[place]
        method, visibility = @ours[place][name]
        front.define_method(name, method)
        front.send(visibility, name)
      end

      def methods_of(front)
        %i[public private].flat_map { |visibility|
          front.public_send(:"#{visibility}_instance_methods", false).map { |name| [name, [front.instance_method(name), visibility]] }
        }.to_h
      end

      # Ruby warns of taking initialize away.
      def remove(front, name)
        verbose, $VERBOSE = $VERBOSE, nil if name == :initialize
        front.send(:remove_method, name)
      ensure
        $VERBOSE = verbose if name == :initialize
      end
    end
    private_constant :Aliases
  end
end
