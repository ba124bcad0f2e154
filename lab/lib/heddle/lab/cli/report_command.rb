# frozen_string_literal: true

require "fileutils"

module Heddle
  module Lab
    class CLI
      # `heddle report FILES`: combines the files of runs of `heddle bench http`, also those of 2008, and draws
      # them; with `--html`, runs of any bench on one page; with `--history`, many runs over their revisions.
      class ReportCommand
        FORMATS = %w[table csv md].freeze
        private_constant :FORMATS

        # @param out [IO]
        # @param err [IO]
        def initialize(out, err)
          @out = out
          @err = err
          @format = "table"
          @columns = ["%CPU", "CPU s per GB"]
          @of_history = {}
        end

        # @param argv [Array<String>]
        # @return [Integer] 0; 1 where --fail-on-step finds one
        # @raise [UsageError, OptionParser::ParseError, Error]
        def run(argv)
          files = parser.parse(argv)
          return Help.print(parser.help, @out) if @help
          return history(files) if @history
          raise UsageError, "--#{@of_history.keys.first} belongs to --history DIR" if @of_history.any?
          raise UsageError, "no files given; heddle bench http -o csv writes one, --out DIR a .json" if files.empty?

          return page(files) if @page

          sheet = combine(files)
          write(sheet) if @directory
          @out.puts render(sheet)
          0
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            known = Bench::HTTP::Sheet::UNITS.keys
            options.banner = "Usage: heddle report FILE... [options]\nCombines .csv (the seed's of 2008, " \
              "too) and .json files of heddle bench http, and draws them by site and by implementation.\n" \
              "With --html: a page of runs of any bench. With --history: many runs over their revisions.\n\n"
            options.on("-o", "--output FORMAT", FORMATS, "table (medians), csv (every round), md") do |format|
              @format = format
            end
            options.on("--out DIR", "write DIR/NAME.csv, .md and the graphs as .svg") do |directory|
              @directory = directory
            end
            options.on("--html PATH", "write a page instead, in which readers choose what is drawn, of .json files of",
              "any bench or of a history: PATH if it ends in .html, else PATH/NAME.html") { |path| @page = path }
            options.on("--name NAME", "the files' name (http, or report with --html)") { |name| @name = name }
            options.on("--graph COLUMNS", Array, "what to draw (#{@columns.join(",")}); there are",
              known.join(", ")) do |columns|
              wrong = columns - known
              raise UsageError, "--graph takes #{known.join(", ")}, not #{wrong.first.inspect}" if wrong.any?

              @columns = columns
            end
            define_history(options)
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        def define_history(options)
          options.separator("\nThe history that heddle bench NAME --record DIR keeps:\n\n")
          options.on("--history DIR", "each row over the revisions, and its steps that are more than noise") do |dir|
            @history = dir
          end
          options.on("--metrics NAMES", Array, "figures to draw, by how their names begin (the first)") do |some|
            @of_history[:metrics] = some
          end
          options.on("--models NAMES", Array, "only these models") { |names| @of_history[:models] = names }
          options.on("--ratios", "ratios to the reference, which a slow day of the machine changes less") do
            @of_history[:ratios] = true
          end
          options.on("--commits URL", "a link for each step, as https://host/compare/{before}...{after}") do |url|
            @of_history[:commits] = url
          end
          options.on("--fail-on-step [N]", Integer, "exit with 1 where one of the newest N runs (10) begins a step for",
            "the worse") do |runs|
            raise UsageError, "--fail-on-step must be at least 1" if runs&.< 1

            @of_history[:"fail-on-step"] = runs || 10
          end
        end

        def history(files)
          raise UsageError, "--history takes a folder, and no further files" if files.any?

          options = @of_history.except(:"fail-on-step")
          report = HistoryReport.new(History.read(@history), @out, @err, **options)
          @page ? report.write(page_path("history")) : report.print
          @of_history.key?(:"fail-on-step") ? report.fail_on_step(@of_history[:"fail-on-step"]) : 0
        end

        # @param name [String] of the file, if the user gave none
        def page_path(name)
          @page.end_with?(".html") ? @page : File.join(@page, "#{@name || name}.html")
        end

        def page(files)
          path = page_path("report")
          labels = labels_of(files)
          Report::Page.new(files.uniq.map { |file| run_of(file, labels[file]) }).write(path)
          @out.puts path
          0
        end

        def run_of(file, label)
          record = Record.read(file)
          BenchCommand.new(Bench.find(record.header["bench"]).new, @out, @out).recorded(record, label)
        rescue OptionParser::ParseError, UsageError => error
          raise Error, "#{file}: #{error.message}"
        end

        # If several files have the same implementation, its name gets that of the file.
        def combine(files)
          sheets = files.to_h { |file| [file, read(file)] }
          owners = sheets.each_with_object(Hash.new { |hash, name| hash[name] = [] }) do |(file, sheet), found|
            sheet.rows.each { |row| found[row["Impl"]] |= [file] }
          end
          labels = labels_of(files)
          rows = sheets.flat_map do |file, sheet|
            sheet.rows.map do |row|
              (owners[row["Impl"]].size > 1) ? row.merge("Impl" => "#{row["Impl"]} (#{labels[file]})") : row
            end
          end
          Bench::HTTP::Sheet.new(rows)
        end

        # The shortest ends of the paths by which the files differ.
        def labels_of(files)
          parts = files.uniq.to_h { |file| [file, file.delete_suffix(File.extname(file)).split("/")] }
          length = (1..parts.values.map(&:size).max).find do |count|
            parts.values.map { |names| names.last(count) }.uniq.size == parts.size
          end
          parts.transform_values { |names| names.last(length || names.size).join("/") }
        end

        def read(file)
          Error.in(file) do
            text = File.read(file)
            (File.extname(file) == ".json") ? of_record(Record.parse(text)) : Bench::HTTP::Sheet.parse(text)
          end
        end

        def of_record(record)
          unless record.header["bench"] == "http"
            raise Error, "this is a run of bench #{record.header["bench"]}; only those of bench http are combined"
          end

          Bench::HTTP::Sheet.of(record)
        end

        def charts(sheet) = @columns.map { |column| sheet.charts(column) }.reduce({}, :merge)

        def render(sheet)
          case @format
          when "csv" then sheet.to_csv
          when "md" then markdown(sheet, {})
          else Report::Text.for(@out).render(title, [sheet.table], [])
          end
        end

        def markdown(sheet, graphs)
          versions = sheet.rows.map { |row| [row["Impl"], row["Versions"]] }.uniq.reject { |_, text| text.to_s.empty? }
          Report::Markdown.render(title, [sheet.table],
            versions.map { |name, text| "#{name}: #{text}" }, graphs: graphs)
        end

        def title = "HTTP clients, combined"

        def write(sheet)
          FileUtils.mkdir_p(@directory)
          name = @name || "http"
          graphs = Report::BarChart.write(charts(sheet), @directory, name)
          File.write(File.join(@directory, "#{name}.csv"), sheet.to_csv)
          File.write(File.join(@directory, "#{name}.md"), markdown(sheet, graphs))
        rescue SystemCallError => error
          raise Error, "cannot write the report: #{error.message}"
        end
      end
    end
  end
end
