# frozen_string_literal: true

module Heddle
  module NetHTTP
    # Replaces methods of the library by ours, as `alias_method` chains do: `Net::HTTP#connect` is ours, and calls
    # `connect_without_heddle` where the C code cannot do the work.
    #
    # An example shows why our methods are not in a prepended module. httplog saves `connect` under another name, and
    # defines its own:
    #
    #     alias orig_connect connect
    #     def connect
    #       HttpLog.log_connection(@address, @port)
    #       orig_connect
    #     end
    #
    # If ours were in a prepended module, `orig_connect` would be the method of that module. Its `super` would find
    # httplog's `connect`, which calls `orig_connect` again, until the stack overflows. In the class itself each method
    # has one place in the chain, whichever library was loaded first:
    #
    #     Heddle first:   httplog's connect -> orig_connect (ours) -> connect_without_heddle (the library's)
    #     httplog first:  our connect -> connect_without_heddle (httplog's) -> orig_connect (the library's)
    #
    # Modules that others prepend (OpenTelemetry, Datadog) stay in front, and their `super` finds our methods. A stub
    # that restores the method it found restores ours. Our methods stay after {Heddle::NetHTTP.disable}, because a
    # program may have saved them; they then only call the library's.
    #
    # An exception may end this between any two steps: Thread#raise, a signal, a hook of the program. Each step leaves
    # classes that work, and the next {Heddle::NetHTTP.enable} takes the steps that are missing.
    #
    # @api private
    module MethodReplacement
      class << self
        # @param place [Module] that has the methods
        # @param ours [Module] that has ours, under the same names
        def replace(place, ours)
          names = ours.instance_methods(false) + ours.private_instance_methods(false)
          names.each { |name| replace_method(place, name, ours.instance_method(name)) }
        end

        # @return [Symbol] under which the class keeps the method that ours has replaced
        def kept(name) = name.to_s.sub(/\??\z/, '_without_heddle\0').to_sym

        private

        def replace_method(place, name, ours)
          method = own(place, name) or return
          define(place, kept(name), method, true) unless own(place, kept(name))
          # Unless ours is there already, or a program has replaced ours.
          return if method.source_location != own(place, kept(name)).source_location

          # Not private_method_defined?, which asks modules in front, too.
          define(place, name, ours, (place.private_instance_methods(false) & [name]).any?)
        end

        # instance_method returns the method of a prepended module, if there is one.
        def own(place, name)
          return unless place.method_defined?(name) || place.private_method_defined?(name)

          in_front = place.ancestors.take_while { |mod| !mod.equal?(place) }
          method = place.instance_method(name)
          method = method.super_method while method && in_front.include?(method.owner)
          method
        end

        # In one step with its visibility, which `private` without a name gives to what follows in the block.
        def define(place, name, method, hidden)
          place.class_exec do
            hidden ? private : public
            define_method(name, method)
          end
        end
      end
    end
    private_constant :MethodReplacement
  end
end
