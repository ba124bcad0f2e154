# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP.start`. With options, the library lists all methods of each new object, some three hundred, to find the
    # setters that the options name. This module lists them once for each class.
    #
    # @api private
    module Start
      # Copied to the singleton class. `def`, because other Ractors cannot call methods made of a block.
      module Methods
        ruby2_keywords def start(address, *arguments, &block) # what a program had put there may take keywords
          options = Hash.try_convert(arguments.last)
          # A Hash of another class, such as Rails', may find keys that it does not list.
          plain = options.nil? || Library.exact?(options, Hash)
          unless plain && arguments.size <= (options ? 6 : 1) && Library.http_of(self, :transport)
            return start_without_heddle(address, *arguments, &block)
          end
          return new(address, arguments[0], :ENV, nil, nil, nil).start(&block) unless options

          port, *proxy = arguments[0...-1]
          port ||= https_default_port if options[:use_ssl]
          proxy = [:ENV] if proxy.empty?
          http = new(address, port, proxy[0], proxy[1], proxy[2], proxy[3])
          Start.set(http, options)
          http.start(&block)
        end
      end

      @setters = {}

      class << self
        # In the order in which the library finds the setters.
        def set(http, options)
          http.ipaddr = options[:ipaddr] if options[:ipaddr]
          options = {verify_mode: OpenSSL::SSL::VERIFY_PEER, **options} if options[:use_ssl]
          setters = setters_of(http, options)
          chosen = options.keys.select { |key| setters.key?(key) }
          chosen.sort_by! { |key| setters[key] } if chosen.size > 1
          chosen.each { |key| http.__send__(:"#{key}=", options[key]) }
        end

        private

        # Kept for named classes only: Net::HTTP.Proxy makes a class each time, which could not be freed.
        def setters_of(http, options)
          klass = http.class
          klass = klass.superclass until klass.name
          known = @setters[klass] ||= find(http)
          current = options.each_key.all? do |key|
            !key.is_a?(Symbol) || known.key?(key) == http.respond_to?(:"#{key}=")
          end
          current ? known : @setters[klass] = find(http)
        end

        def find(http)
          http.methods.filter_map { |name| name[/\A(\w+)=\z/, 1]&.to_sym }.each_with_index.to_h
        end
      end
    end
    private_constant :Start
  end
end
